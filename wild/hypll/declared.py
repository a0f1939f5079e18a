"""What the points and the curvature have to be."""


def inside_the_ball(points, curvature, *rest):
    curvature = curvature.clamp(0.1, 4.0)
    norm = points.norm(dim=-1, keepdim=True).clamp(min=1e-3)
    return points * (norm.clamp(max=0.4) / norm), curvature, *rest
