"""The gateway to SportMonks, where scores come from: what is on its wire, and what that means in the words of the backend."""
