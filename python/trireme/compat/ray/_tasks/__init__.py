"""ray.remote on one machine: tasks and actors are processes, a thread of the driver (the broker) connects them.

Every process of the script has one connection to the broker, over a socket that only this user can open. Values above
64 KB are in shared memory, which the driver holds: it is freed when the driver exits.
"""
