"""Who asks: logins, tokens and sessions of the web application, as endpoints and as pages."""
