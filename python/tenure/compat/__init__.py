"""Modules that stand in for other stores' Python packages, so that software written for those runs on Tenure."""
