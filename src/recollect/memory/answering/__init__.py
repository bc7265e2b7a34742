"""Answers: scores of candidates, stored facts first, knowledge at a time, periods, intervals, forecasts."""
