"""Never calls Run."""

print("nothing to do")
