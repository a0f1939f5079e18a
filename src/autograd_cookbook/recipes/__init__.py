"""The recipes: one module for each page of the cookbook. Modules with an underscore have helpers for several pages."""
