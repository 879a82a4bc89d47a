"""Cache entries shared between gateways through the store."""
