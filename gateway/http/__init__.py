"""The gateway's HTTP edge: uvicorn's protocol on uvloop and httptools, with everything a public port needs besides.

address, descriptors    what is bound, what accepted sockets inherit, how many there may be
server → state          listeners and their drain; what the connections of one listener share
protocol → meter        one connection: reading and answering; what its client has cost so far
head, upgrade, refusal  which heads pass; what becomes of other protocols; what is answered to the others
certificate             the certificate of a TLS listener, and its files' changes
exchange                one request and its response on the wire, and the request's EdgeChannel
wheel                   one coarse timer for every deadline of every connection
asgi, disconnect        what applications use: types, verbs, the channel, the watch for clients that leave
"""
