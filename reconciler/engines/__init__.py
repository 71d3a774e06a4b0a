"""How a plan is carried out, whatever engine does it: `backend` says what an engine answers."""
