"""At which places of its ranking a query finds its relevant references: by search or by counting, also over ranks."""
