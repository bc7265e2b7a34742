"""The one error a user ever sees: what was given, what was wanted, what to do."""


class UserError(ValueError):
    """Bad input, described in one sentence; the command line prints it without a traceback."""
