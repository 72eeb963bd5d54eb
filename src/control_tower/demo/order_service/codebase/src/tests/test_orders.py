import unittest

from orders import book, nightly

from .memory import MemoryDatabase


class OrdersTest(unittest.TestCase):
    def setUp(self):
        self.database = MemoryDatabase()

    def test_an_order_is_placed_and_shipped_once(self):
        number = book.place(self.database, 1, 2, "lamp", 1200)
        book.ship(self.database, number)
        self.assertEqual(book.find(self.database, number)["status"], "shipped")
        with self.assertRaises(book.Refusal):
            book.ship(self.database, number)

    def test_what_is_not_there_is_refused(self):
        with self.assertRaises(book.Refusal):
            book.place(self.database, 7, 2, "lamp", 1200)
        with self.assertRaises(book.Refusal):
            book.ship(self.database, 7)

    def test_shipped_orders_are_paid_out_once(self):
        book.ship(self.database, 2)
        self.assertEqual(nightly.pay_out(self.database, ["id", "cents"]), 1)
        self.assertEqual(nightly.pay_out(self.database, ["id", "cents"]), 0)
        [payout] = self.database.rows("SELECT supplier, iban, cents FROM payouts")
        self.assertEqual(payout, {"supplier": 1, "iban": "ZZ10REED", "cents": 11500})

    def test_the_supplier_reads_about_each_order(self):
        nightly.pay_out(self.database, ["id", "item", "cents"])
        [message] = self.database.rows("SELECT text FROM messages")
        self.assertEqual(message["text"], "Dear Reed & Son, we paid 25.00 EUR for:\n  1  basket  25.00 EUR")


if __name__ == "__main__":
    unittest.main()
