"""`retold sessions export`: the command, and a module a form in which sessions leave."""
