#!/usr/bin/env python3
"""Options have the order of the arguments of the function that they are named after, because GCC refuses designated
initializers in another order than the members'. Members of Tandem's own come after the shared ones."""

import unittest

from signatures import members, signatures

# The order in which people write the options of fit(), counted in public code, serves more calls than that of the
# signature; and the order of what is written with a layer's own members.
EXCEPTIONS = {
    "FitOptions": "epochs batch_size initial_epoch steps_per_epoch validation_data validation_split validation_steps "
                  "validation_batch_size validation_freq verbose callbacks shuffle_seed shuffle class_weight sample_weight",
}


class Signatures(unittest.TestCase):
    def test_options_have_the_order_of_the_originals(self):
        for header, struct, shared in signatures():
            with self.subTest(struct=struct, header=header):
                self.assertGreater(len(shared), 1)
                self.assertEqual([name for name in members(header, struct) if name in shared], shared)

    def test_fit_has_the_order_of_its_use(self):
        for struct, order in EXCEPTIONS.items():
            self.assertEqual(members("model_options.h", struct), order.split())


if __name__ == "__main__":
    unittest.main()
