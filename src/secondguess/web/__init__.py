"""What every page served to this machine needs: access by token, the server, pictures, the shared style."""
