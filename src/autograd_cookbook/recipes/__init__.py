"""The recipes: one module for each page of the cookbook. What several pages need is in modules with an underscore."""
