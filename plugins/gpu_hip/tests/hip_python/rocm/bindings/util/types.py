"""Handles and device arrays."""


class Pointer:
    def __init__(self, address):
        self.address = address

    @classmethod
    def fromObj(cls, obj):
        interface = getattr(obj, "__cuda_array_interface__", None)
        made = cls(int(obj) if interface is None else interface["data"][0])
        made.__dict__.update({} if interface is None else {"interface": dict(interface)})
        return made

    def __int__(self):
        return self.address


class DeviceArray(Pointer):
    def configure(self, typestr, shape):
        data = (self.address, False)
        self.interface = {"version": 3, "data": data, "typestr": typestr, "shape": shape, "strides": None}
        return self

    @property
    def __cuda_array_interface__(self):
        return self.interface
