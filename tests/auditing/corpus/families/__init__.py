"""One broken function for each other way in which a check reports something, and right ones that it must not take."""
