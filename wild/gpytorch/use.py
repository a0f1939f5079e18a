"""Gaussian process regression with each kernel, and classification with each variational strategy."""

import gpytorch
import torch
from gpytorch import kernels, variational

torch.manual_seed(0)
train_x = torch.rand(6, 2)
train_y = torch.sin(3 * train_x[:, 0]) + 0.1 * torch.randn(6)
labels = (train_y > train_y.mean()).float()


class Regression(gpytorch.models.ExactGP):
    def __init__(self, kernel, likelihood):
        super().__init__(train_x, train_y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.covariance = kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


class Classification(gpytorch.models.ApproximateGP):
    def __init__(self, strategy, distribution, kernel):
        inducing = torch.rand(3, 2)
        super().__init__(strategy(self, inducing, distribution(3), learn_inducing_locations=False))
        self.mean = gpytorch.means.ConstantMean()
        self.covariance = kernels.ScaleKernel(kernel)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))


for kernel in (kernels.RBFKernel(), *(kernels.MaternKernel(nu=nu) for nu in (0.5, 1.5, 2.5))):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    regression = Regression(kernel, likelihood).train()
    exact = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, regression)
    (-exact(regression(train_x), train_y)).backward()

for strategy, distribution in (
    (variational.VariationalStrategy, variational.CholeskyVariationalDistribution),
    (variational.VariationalStrategy, variational.NaturalVariationalDistribution),
    (variational.VariationalStrategy, variational.TrilNaturalVariationalDistribution),
    (variational.LargeBatchVariationalStrategy, variational.CholeskyVariationalDistribution),
    (variational.CiqVariationalStrategy, variational.NaturalVariationalDistribution),
):
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    classification = Classification(strategy, distribution, kernels.RBFKernel()).train()
    bound = gpytorch.mlls.VariationalELBO(likelihood, classification, num_data=6)
    (-bound(classification(train_x), labels)).backward()
