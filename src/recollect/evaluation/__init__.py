"""Rank, measure and calibrate: ranking, metrics, calibration, baselines."""
