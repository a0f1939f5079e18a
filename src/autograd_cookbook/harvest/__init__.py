"""The harvest: finds the calls that a project makes of its own functions, and has them audited."""
