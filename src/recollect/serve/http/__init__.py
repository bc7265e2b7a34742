"""The service over HTTP: REST routes, bodies, who may ask, metrics, processes."""
