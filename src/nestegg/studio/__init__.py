"""The studio: a local web application to look at plans, runs, accounts and statements. It changes nothing."""
