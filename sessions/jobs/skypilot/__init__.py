"""Jobs on machines that SkyPilot rents."""
