import unittest

from crawler import links, report
from crawler.frontier import Frontier


class FrontierTest(unittest.TestCase):
    def test_first_in_first_out_each_once(self):
        frontier = Frontier()
        for url in ("a", "b", "a"):
            frontier.add(url)
        self.assertEqual([frontier.next(), frontier.next(), frontier.next()], ["a", "b", None])


class LinksTest(unittest.TestCase):
    def test_title_and_links(self):
        html = '<title>Offers</title><a href="/a">A</a> <a href="http://b.example/">B</a> <a href="mailto:x@y">C</a>'
        title, found = links.extract("http://shop.example/list", html)
        self.assertEqual(title, "Offers")
        self.assertEqual(found, ["http://shop.example/a", "http://b.example/"])

    def test_relative_to_the_folder(self):
        self.assertEqual(links.join("http://shop.example/tea/list", "green"), "http://shop.example/tea/green")


class ReportTest(unittest.TestCase):
    def test_summary(self):
        result = {
            "start": "http://shop.example/",
            "pages": [{"url": "http://shop.example/", "status": 200, "title": "Shop", "links": 1}],
            "skipped": [{"url": "http://bad.example/", "reason": "blocklisted host"}],
        }
        self.assertEqual(report.summary(result)["by_status"], {"200": 1})
        self.assertIn("http://shop.example/,200,Shop,1", report.as_csv(result))
