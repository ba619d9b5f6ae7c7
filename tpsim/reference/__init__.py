"""The judge: programs run on simulated devices in numpy, by code that knows no formula."""
