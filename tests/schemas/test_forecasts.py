from schemas.forecasts import Forecast, error_fraction


def test_an_engine_that_is_loaded_already_is_forecast_without_its_load():
    cold = Forecast(
        basis="",
        seconds=20.0,
        low_s=16.0,
        high_s=24.0,
        load_s=15.0,
        busy_s=5.0,
        usd=2.0,
        low_usd=1.6,
        high_usd=2.4,
    )

    warm = cold.without_load()

    assert (warm.seconds, warm.low_s, warm.high_s) == (5.0, 4.0, 6.0)
    assert (warm.usd, warm.load_s, warm.busy_s) == (0.5, 0.0, 5.0)


def test_a_forecast_of_nothing_has_no_load_to_leave_out():
    unknown = Forecast(basis="nobody knows")

    assert unknown.without_load() == unknown


def test_an_error_is_a_share_of_what_was_expected():
    assert error_fraction(11.0, 10.0) == 11 / 10 - 1
    assert error_fraction(11.0, None) is None
    assert error_fraction(0.0, 0.0) is None
