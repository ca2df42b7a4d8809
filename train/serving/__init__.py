"""A model for servers: a program that other runtimes load without this project, and what it needs beside it."""
