"""Accounts of a small bank. Amounts are whole cents."""


class InsufficientFunds(Exception):
    """The balance does not cover the amount."""


class Account:
    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance
        self.history = []

    def deposit(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        self.history.append(("deposit", amount))

    def withdraw(self, amount):
        if amount <= 0:
            raise ValueError("amount must be positive")
        if amount > self.balance:
            raise InsufficientFunds(self.owner)
        self.balance -= amount
        self.history.append(("withdraw", amount))


def move(source, target, amount):
    """Moves an amount between two accounts of the same owner."""
    if source.owner != target.owner:
        raise ValueError("the accounts have different owners")
    source.withdraw(amount)
    target.deposit(amount)


def transfer(source, target, amount, fee=25):
    """Moves an amount to the account of another owner. The source pays the fee."""
    if fee < 0:
        raise ValueError("fee must not be negative")
    target.deposit(amount)
    source.withdraw(amount + fee)


def total(accounts):
    """Sum of all balances."""
    return sum(account.balance for account in accounts)
