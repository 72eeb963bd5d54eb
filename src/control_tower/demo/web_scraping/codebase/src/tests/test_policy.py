import unittest

from crawler.fetch import Client, Session
from crawler.policy import Policy, covers


class PolicyTest(unittest.TestCase):
    def setUp(self):
        self.policy = Policy({"bad.example"}, ())

    def test_refuses_a_blocklisted_host_and_what_is_below_it(self):
        self.assertEqual(self.policy.refuse("http://bad.example/x"), "blocklisted host")
        self.assertEqual(self.policy.refuse("http://www.BAD.example:80/"), "blocklisted host")

    def test_allows_other_hosts(self):
        self.assertIsNone(self.policy.refuse("http://notbad.example/"))

    def test_scope(self):
        self.assertEqual(Policy((), {"a.example"}).refuse("http://b.example/"), "out of scope")
        self.assertTrue(covers({"a.example"}, "shop.a.example"))

    def test_only_web_pages(self):
        self.assertEqual(self.policy.refuse("ftp://a.example/"), "not a web page")


class SessionTest(unittest.TestCase):
    def test_cookie_stays_with_its_domain(self):
        client = Client(Session("partner.example", "s", "secret"), "test", 1)
        self.assertEqual(client.headers("www.partner.example")["Cookie"], "s=secret")
        self.assertNotIn("Cookie", client.headers("otherpartner.example"))
