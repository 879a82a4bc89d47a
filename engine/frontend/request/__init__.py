"""Request bodies and headers: parsing, validation and errors."""
