"""Serve a memory: one layer of typed questions and answers under REST, MCP and the command line."""
