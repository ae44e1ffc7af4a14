"""What trireme.xgboost and trireme.lightgbm have in common."""
