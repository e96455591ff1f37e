"""The laboratory of secondguess: papers' tables as code, benchmarks against peers, rivals that only a paper needs."""
