"""Makes the pictures of the tests, and what Pillow makes of them: pip install pillow."""
from PIL import Image

w, h = 37, 23
photo = Image.new("RGB", (w, h))
photo.putdata([((x * 7 + y * 3) % 256, (x * x + y * 11) % 256, (255 - x * y) % 256) for y in range(h) for x in range(w)])
photo.save("photo.png")
photo.save("photo.jpg", quality=95)
Image.open("photo.jpg").convert("RGB").save("photo_jpg.png")
for name, size in [("small", (11, 9)), ("large", (64, 50)), ("wide", (80, 5)), ("one", (1, 1)), ("flat", (30, 12)), ("tall", (9, 70)), ("square", (20, 20)), ("half", (18, 11))]:
    photo.resize(size, Image.BILINEAR).save("photo_%s.png" % name)
photo.convert("L").save("photo_grey.png")
rgba = photo.convert("RGBA")
rgba.putalpha(Image.new("L", (w, h), 100))
rgba.save("photo_rgba.png")
photo.quantize(16).save("photo_palette.png")
photo.quantize(16).convert("RGB").save("photo_palette_rgb.png")
for kind, colour in [("cat", (200, 30, 30)), ("dog", (30, 30, 200))]:
    for i in range(3):
        p = Image.new("RGB", (12 + i, 10), colour)
        p.putpixel((0, 0), (i * 40, 255, 0))
        p.save("../../testdata/pets/%s/%d.%s" % (kind, i, "png" if i else "jpg"))
