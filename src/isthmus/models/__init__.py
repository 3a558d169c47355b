"""The provider-free language: events, contract, messages, tools."""
