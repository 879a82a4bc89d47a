"""Pure routing logic: the policy document, filters, scorers, pickers and models. No I/O, no clock."""
