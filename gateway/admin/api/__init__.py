"""The admin API's requests, typed fields, errors and access gate."""
