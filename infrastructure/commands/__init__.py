"""What SessionEngine can do, a module for each part of its work; a command is one decision, one save."""
