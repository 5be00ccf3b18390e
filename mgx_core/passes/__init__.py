"""Graph passes: constant folding, common subexpression elimination, fusion, outlining."""
