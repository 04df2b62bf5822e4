"""Queries on Spark executors: the job that travels, and the task that plans it anew."""
