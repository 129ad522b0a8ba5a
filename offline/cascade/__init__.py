"""The cascade: a cheap first stage over weights of the head, and the band in which the full posterior answers."""
