"""Command line: take and ship orders, look at one, run the nightly job."""

import argparse
import json
import sys

from . import book, nightly
from .database import Database

CONFIG = "config/messages.json"


def build_parser():
    parser = argparse.ArgumentParser(prog="orders", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    place = commands.add_parser("place", help="take an order")
    place.add_argument("--customer", required=True, type=int)
    place.add_argument("--supplier", required=True, type=int)
    place.add_argument("--item", required=True)
    place.add_argument("--cents", required=True, type=int, help="the price")
    ship = commands.add_parser("ship", help="note that an order was shipped")
    ship.add_argument("--order", required=True, type=int)
    show = commands.add_parser("show", help="print an order")
    show.add_argument("--order", required=True, type=int)
    commands.add_parser("nightly", help="pay the suppliers")
    return parser


def run(args, database):
    if args.command == "place":
        print(book.place(database, args.customer, args.supplier, args.item, args.cents))
    elif args.command == "ship":
        book.ship(database, args.order)
    elif args.command == "show":
        print(json.dumps(book.find(database, args.order)))
    elif args.command == "nightly":
        with open(CONFIG, encoding="utf-8") as file:
            columns = json.load(file)["columns"]
        print(nightly.pay_out(database, columns), "suppliers were paid")


def main():
    args = build_parser().parse_args()
    try:
        run(args, Database())
    except book.Refusal as refusal:
        print(f"orders: {refusal}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
