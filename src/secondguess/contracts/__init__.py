"""What supervisors, stress sets, oracles, estimators and searches share: names, parameters, saving, test kits."""
