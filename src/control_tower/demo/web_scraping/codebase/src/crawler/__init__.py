"""Crawler of the price comparison team: fetch shop pages through the proxy and report what was found."""
