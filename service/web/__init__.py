"""How HTTP comes in and goes out: sockets and limits before the routes, errors and headers after them."""
