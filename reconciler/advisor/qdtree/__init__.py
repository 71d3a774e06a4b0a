"""Builds trees of cuts from recorded queries (Yang et al., "Qd-tree: Learning Data Layouts for Big
Data Analytics")."""
