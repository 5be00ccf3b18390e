"""From kernel text to code that a device loads: the portability prelude, the compilers, the cache."""
