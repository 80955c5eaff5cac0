"""The engine worker process with its loop, the client that the server holds, and the messages between them."""
