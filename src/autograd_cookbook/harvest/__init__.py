"""The harvest: record the calls that a project makes of its own functions, and audit these calls."""
