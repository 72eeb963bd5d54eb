"""What the price analysts ran: its output on the unchanged crawler is `test_output.txt`."""

import unittest

from crawler import links


class RelativeLinksTest(unittest.TestCase):
    base = "http://shop.example/catalog/tea/list"

    def extract(self, href):
        _, found = links.extract(self.base, f'<a href="{href}">x</a>')
        return found

    def test_parent_folder(self):
        self.assertEqual(self.extract("../coffee/list"), ["http://shop.example/catalog/coffee/list"])

    def test_above_the_root(self):
        self.assertEqual(self.extract("../../../imprint"), ["http://shop.example/imprint"])

    def test_query_only(self):
        self.assertEqual(self.extract("?page=2"), ["http://shop.example/catalog/tea/list?page=2"])

    def test_fragment_is_the_same_page(self):
        self.assertEqual(self.extract("#reviews"), ["http://shop.example/catalog/tea/list"])

    def test_fragment_of_another_page(self):
        self.assertEqual(self.extract("green#price"), ["http://shop.example/catalog/tea/green"])


if __name__ == "__main__":
    unittest.main()
