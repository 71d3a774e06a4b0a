"""Judges one candidate: does its saving pass the gate, the floor, and what the table can risk?"""
