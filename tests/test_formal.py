from .formal.watch import X

def test_x():
    assert X == 1
